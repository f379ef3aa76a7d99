// Package lossweep tests what a program does when it loses a lock. It is for
// authors of applications; authors of drivers use package dlocktest.
//
// A program that has lost its lock must stop writing what the lock protects,
// and must not report success. Such code paths hardly ever run in tests. [Run]
// calls the function under test again and again, and each time loses its locks
// at another moment: before each request to the store, and at each write. In
// further runs another client holds the lock, or the store is down. A run takes
// place in memory and in virtual time, so that a sweep takes milliseconds and
// always finds the same.
//
// The test says when something is written, usually in a fake of the database:
//
//	func TestShip(t *testing.T) {
//		lossweep.Run(t, func(t *testing.T, s *lossweep.Sweep) error {
//			db := &fakeDB{wrote: s.Write}
//			return ship(t.Context(), s.Client(), db)
//		})
//	}
//
// If the database checks fencing tokens, the fake calls [Sweep.WriteToken].
//
// # What is found
//
// Run reports as failures of the test
//
//   - a write while the function holds no lock, with the lines that made it.
//     Before a write the program asks Lock.Err, which knows of a loss at once;
//     after a pause of the process, Lock.Context ends later;
//   - that the function returned nil after a loss, although it has made fewer
//     writes than without one.
//
// If the function made all its writes and returned nil, although the lock was
// lost before Unlock, Run logs it: a program that ignores the error of Unlock
// does not learn when writes were late.
//
// # What is not found
//
// No check can prevent a write that is on its way when the lock is lost. So if
// a lock is lost at a call of Write, that write counts as made in time. Only
// tokens exclude it: a call of WriteToken is refused.
//
// A function that holds several locks may write while it holds any of them. A
// function whose requests come in another order each time is not swept
// completely; Run fails if it does not reach a request that it made before.
package lossweep
