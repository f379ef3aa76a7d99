package recipes

// ContextsOf returns the number of contexts that the Lock will cancel when it
// ends.
func ContextsOf(l *Lock) int {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return len(l.contexts)
}
