// Package soak holds tests only: processes that count under locks, on three ZooKeeper servers, while servers,
// networks, disks and the processes themselves fail, for as long as one likes.
//
//	go test -race ./internal/longtest/soak                                     the short form: every kind of fault once
//	go test -race -v -timeout 0 ./internal/longtest/soak -soak 30m             for half an hour; make soak SOAK=30m SEED=7 does that
//	go test -race -v -timeout 0 ./internal/longtest/soak -soak 30m -seed 7     with the faults, their order and their durations of another run
//	go test -race -v ./internal/longtest/soak -seed 7 -first 12                only its twelfth sitting
//	go test -race -v ./internal/longtest/soak -faults 'leader|disk'            only some kinds of faults
//
// # Who does what
//
// A run is a series of sittings. In each one, several worker processes (this test's binary, run again) hold and
// release a few locks through the public interface, each with several goroutines, some for writing, some for
// reading, some with a timeout, trying, entering again or downgrading. Each writer bumps two counters in files: one that checks the fencing
// token, and one that does not. Meanwhile every kind of fault strikes once, alone or together with others, in an order and with durations
// that a seed draws; each is healed, and after each the workers have to get on.
//
// # What is judged
//
// Every worker writes a journal. All processes are on one machine, whose monotonic clock they share, and a worker
// says that it believed to hold a lock at an instant only if it read the clock first and Err was nil
// afterwards: as Err never turns nil again, it was nil at that instant. So a process that was
// stopped says nothing wrong. At the end of a sitting the journals are judged:
//
//   - no two believed at the same instant to hold the lock, unless both shared it (or an operator had removed the node of one);
//   - holders came in the order of their tokens, and the tokens of writers differ;
//   - the counter that checks tokens has lost no update, and refused nobody who had reason to believe in his lock;
//   - no call hung or returned an error that it should not, everybody got on after every heal, and
//     nothing is left: no node, watch or session's node in the store, no goroutine in a worker.
//
// What the counter without the check has lost is told beside it. In each sitting one worker is stopped exactly
// between its last look at the lock and its write, until others have written: that update is always lost there, and always
// refused by the check.
package soak
