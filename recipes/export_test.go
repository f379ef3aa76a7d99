package recipes

// ContextsOf returns the number of contexts that the Lock will cancel when it
// ends.
func ContextsOf(l *Lock) int {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return len(l.contexts)
}

// Cohorts returns the number of the client's cohorts, one per lock used with
// retention.
func (c *Client) Cohorts() int {
	c.cohorts.mu.Lock()
	defer c.cohorts.mu.Unlock()
	return len(c.cohorts.byName)
}
