// Package lossweep tests what a program does when it loses a lock. It is for
// authors of applications; authors of drivers use package dlocktest.
//
// A lock is rarely lost, but when it is, another process holds it. The program
// must then stop writing what the lock protects, and must not report success.
// Such code paths hardly ever run in tests. [Run] calls the function under test
// again and again, and each time loses its locks at another moment: before each
// request to the store, and at each write. In further runs another client holds
// the lock, or the store is down, so that the function gets no lock. A run takes
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
//     Before a write the program asks Lock.Err, which knows of a loss at once.
//     After a pause of the process, Lock.Context ends later. A program that goes on
//     after an error of Lock or TryLock is found so, too;
//   - that the function returned nil after a loss, although it has made fewer
//     writes than without one.
//
// Run logs it if the function returned nil and has made all its writes, but the
// lock was lost before Unlock. The writes were made in time, but a program that
// ignores the error of Unlock does not learn when they were not.
//
// # What is not found
//
// A write that is on its way when the lock is lost cannot be prevented by any
// check. So if a lock is lost at a call of Write, that write counts as made in
// time, and the next one is late. Only tokens exclude such a write, and a call of
// WriteToken is refused in this case.
//
// A function that holds several locks may write while it holds any of them. A
// function whose requests come in another order each time is not swept
// completely; Run fails if it does not reach a request that it made before.
package lossweep
