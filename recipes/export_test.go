package recipes

// ContextsOf returns how many contexts a lock would have to cancel.
func ContextsOf(l *Lock) int {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return len(l.contexts)
}

// Retainers returns how many locks are used with retention.
func (c *Client) Retainers() int {
	c.retainers.mu.Lock()
	defer c.retainers.mu.Unlock()
	return len(c.retainers.byName)
}
