//go:build race

package simulation

// raced reports whether the race detector is on.
const raced = true
