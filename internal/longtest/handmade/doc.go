// Package handmade shows how hand-written locks break. Each test uses a lock
// made of a few statements of a database or of Redis. It then repeats the same
// events with dlock on the same store, which does not break.
//
// The page docs/use/choosing-a-store.md explains the tests. To read along:
//
//	go test -C internal/longtest -v -run Paused ./handmade
//
// Each contender is a process, started from this test binary. The test gives it
// orders line by line, stops it with SIGSTOP, and kills it, so that the order
// of events does not depend on the speed of the machine. The files are:
//
//   - process_test.go: the processes, as seen by a test.
//   - child_test.go: what runs in such a process.
//   - stories_test.go: sequences of events shared by several locks.
//   - dlock_test.go, majority_test.go: dlock's own locks.
//   - the other files: one hand-written lock each, with its tests.
package handmade
