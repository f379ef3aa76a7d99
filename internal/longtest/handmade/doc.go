// Package handmade holds no code but tests. They play the locks that programs make by
// hand with a few statements of a database or of Redis, and show where each of them
// breaks. Beside that, the same happens to a lock of dlock on the same store, which
// does not break.
//
// The page docs/choosing-a-store.md tells what each test plays. To read along:
//
//	go test -C internal/longtest -v -run Paused ./handmade
//
// Each contender is a process of its own: this test binary, run again. The test tells
// it by lines what to do, stops it by SIGSTOP, and kills it. So no order of events
// depends on the speed of the machine. The files are:
//
//   - process_test.go: the processes, as a test sees them.
//   - child_test.go: what runs in such a process.
//   - stories_test.go: stories that several locks go through.
//   - dlock_test.go: the lock of dlock.
//   - the other files: one lock made by hand each, and its tests.
package handmade
