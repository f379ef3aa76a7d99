package recipes

// ContextsOf returns how many contexts the Lock has to cancel when it ends.
func ContextsOf(l *Lock) int {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return len(l.contexts)
}

// Cohorts returns how many locks are used with retention.
func (c *Client) Cohorts() int {
	c.cohorts.mu.Lock()
	defer c.cohorts.mu.Unlock()
	return len(c.cohorts.byName)
}
