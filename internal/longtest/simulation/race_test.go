//go:build race

package simulation

// raced tells whether the race detector is on.
const raced = true
