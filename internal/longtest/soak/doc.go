// Package soak holds tests only: worker processes count under locks, on three
// ZooKeeper servers, while servers, networks, disks and the workers themselves
// fail, for as long as the operator of the test likes.
//
//	go test -race .                                    one round
//	go test -race -v -timeout 0 . -soak 30m            rounds for half an hour
//	go test -race -v -timeout 0 . -soak 30m -seed 7    with other faults
//	go test -race -v . -seed 7 -first 12               only the twelfth round
//	go test -race -v . -faults 'leader|disk'           only some kinds of faults
//
// `make soak SOAK=30m SEED=7`, in the root of the module, runs the third of
// these commands.
//
// # What happens
//
// A run is a series of rounds. In each round several workers, which are
// processes of this test binary, acquire and release a few locks through the
// public interface. Each worker has several goroutines: some write, some read,
// and they wait, time out, try, re-enter and downgrade. Each writer increments
// two counters in files: one that checks the fencing token, and one that does
// not.
//
// Meanwhile the test injects every kind of fault once, alone or together with
// others. A seed draws the order and the durations. The test heals each fault,
// and then every worker has to acquire a lock again.
//
// # What is judged
//
// Every worker writes a journal. All processes are on one machine and share its
// monotonic clock. A worker reads the clock and then Err. If Err is nil, the
// lock is confirmed at the instant that the clock showed, because an Err that
// has turned non-nil stays so. So the journal of a process that was stopped
// says nothing wrong. At the end of a round the test checks the journals:
//
//   - No two locks are confirmed at the same instant, unless both are shared or
//     an operator had removed the node of one.
//   - Holders come in the order of their tokens, and the tokens of writers
//     differ.
//   - The counter that checks tokens has lost no update, and has refused no
//     token of a lock that was confirmed after the refusal.
//   - No call returned an error that no fault explains.
//   - Every worker acquired a lock after every heal, and no call hung.
//   - Nothing is left: no watch and no node of a contender in the store, and no
//     goroutine in a worker.
//
// The table at the end also shows what the counter without the check has lost.
// In each round one worker is stopped exactly between its last check of the
// lock and its write, until another worker has written. The counter without the
// check always loses that update, and the one with the check always refuses it.
//
// # Servers that have diverged
//
// In about one of 250 rounds, a server of ZooKeeper 3.8.0 disagrees with the
// two other servers for good, and a waiter that is connected to it may wait for
// ever: see package survey. So when a round is stuck, the test makes surveys. If
// the verdict is that the ensemble has diverged, the test prints what each
// server shows, counts the round, and goes on with a new ensemble. That explains
// only what was stuck. The checks of two holders, of the order of tokens and of
// lost updates count all the same.
package soak
