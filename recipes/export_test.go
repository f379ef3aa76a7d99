package recipes

// ContextsOf returns how many contexts a lock would have to cancel.
func ContextsOf(l *Lock) int {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return len(l.contexts)
}
