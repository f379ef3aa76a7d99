// Package history makes histories of the lock, the calls of several clients and
// their results, under faults of the store, of the network and by operators. It
// has one actor, one recorder and one set of rules, in three worlds: in virtual
// time on a store in memory, on any store with the Config that the test of its
// driver passes to dlocktest.Run, and on ZooKeeper servers that fail
// (internal/longtest/ensemble).
//
// This package checks the rules that need no search, and
// internal/longtest/histories that the saved histories are linearizable. It is
// in another module, so that drivers do not require its library.
//
// # How to run it
//
//	make histories                               all stores, recorded and judged
//	go test .                                    500 seeds
//	go test . -seeds=500000                      more seeds
//	go test -run=TestNoSeed . -seeds=1 -seed=44  a seed that failed
//
// The test of a driver calls [Run]. DLOCK_HISTORIES names a directory for the
// records, without which there is no search.
//
// # The gate
//
// In virtual time a client reaches the store through a connector of package
// faults with a gate. There every request, reply and end of a watch waits until
// the run lets it pass, one at a time and in an order drawn from the seed.
// Before the next one all goroutines run until they block, so the scheduler
// decides nothing. Between two steps the run injects faults: it loses,
// duplicates and delays messages, ends watches early, ends sessions or cuts
// them off, closes clients, removes nodes and queues, and pauses processes.
// After every step a judge, whose methods state its rules, compares the lock
// with the store.
//
// Even seeds repeat exactly, except for about one in two hundred in which two
// goroutines of a client wake at the same instant. In odd seeds two actors
// share a client.
//
// In further runs, actors lock a majority of three stores behind the gate.
//
// # What is recorded
//
// A logical clock gives every call and every return a tick of its own. A loss
// takes a lock from its holder after the cause, and before the holder has
// learned of it. There are two kinds of causes. If the store drops a silent
// session, the client must know before the store grants the lock to another
// contender. Holders therefore call Err and Mode continuously, and every answer
// must be true: nobody may be granted the lock beside a holder that later
// answers "still held". But no client can know at once that an operator has
// removed its node or has ended its session. Answers after such a cause prove
// nothing.
//
// # When it fails
//
// A run with the gate prints its seed and journal. The search draws the history
// as an HTML page beside the records, and prints the file name and the seed.
package history
