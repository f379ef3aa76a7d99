// Package generations tests, in virtual time, the rules by which a store that
// has lost data never makes two holders: its data belong to a generation, and a
// new one begins only after a grace (see docs/operate/fail-over.md).
//
// It is a model: a small copy of the rules of contrib/redisdriver. Keep type
// rules and the scripts of type server in step with its lua directory.
// PostgreSQL differs in who confirms: see allConfirm.
//
// # A history
//
// A seed draws one to five servers and the order of events. Three clients
// acquire and release one lock. Meanwhile replicas lag, and are promoted with
// older data while the old master dies, follows, or goes on to answer its
// clients; a master is demoted and promoted again with the data of the other
// one; servers restart with all, older or no data; the clock of a server that
// takes over is a minute behind or ahead, and may be set once before its
// generation begins; and messages are lost, or take longer than any lease. A
// history fails if two clients hold the lock by their own clocks, if the tokens
// of grants fall, or if nobody gets the lock after all trouble has ended.
// Tokens may fall if a clock is behind and the data are too old: see
// server.begin.
//
// # What it sees
//
// TestAttacks leaves out one rule at a time, and fails if no seed shows that.
// TestStagedAttacks does the same for two rules that no seed has shown.
//
//	go test .                                 10,000 seeds, with two sets of rules
//	go test -run=Rules . -seeds=1000000       any number
//	go test -run=Rules . -seeds=1 -seed=44    one seed again
package generations
