// Package soak tests locks under every kind of fault, for as long as one likes.
// Worker processes count under locks on three ZooKeeper servers while servers,
// networks, disks and the workers themselves fail.
//
//	go test -race .                                    one round
//	go test -race -v -timeout 0 . -soak 30m            rounds for half an hour
//	go test -race -v -timeout 0 . -soak 30m -seed 7    with other faults
//	go test -race -v . -seed 7 -first 12               only the twelfth round
//	go test -race -v . -faults 'leader|disk'           only some kinds of faults
//
// # What happens
//
// In each round several workers, which are processes of this test binary,
// acquire and release a few locks. Each writer increments two counters in
// files, only one of which checks the fencing token.
//
// Meanwhile the test injects every kind of fault once, in an order and for
// durations drawn from the seed. After each fault is healed, every worker has
// to acquire a lock again.
//
// # What is judged
//
// The counters check holders in the order in which they arrive. A counter that
// checks tokens refuses a writer behind a later writer or reader, and a reader
// behind a later writer. Whoever is refused asks Err of its lock. If Err is
// nil, there are two holders. Only after an operator has removed a node may
// that be so for a moment.
//
// The test fails, too, if the counter with the check has lost an update, or has
// seen one token of two writers; if a call hangs or returns an error that no
// fault explains; and if a watch, a node, or a goroutine of a worker is left.
//
// In each round one worker is stopped exactly between its last check of the
// lock and its write, until another worker has written. The counter without the
// check always loses that update, and the one with the check always refuses it.
//
// # Servers that have diverged
//
// In about one of 250 rounds, a ZooKeeper 3.8.0 server disagrees with the
// others for good, and a waiter connected to it may wait for ever (see package
// survey). If a round is stuck for this reason, the test continues with a new
// ensemble. That excuses only what was stuck.
package soak
