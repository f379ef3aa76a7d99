// Package longtest is the roof over the tests that take minutes. It holds no code itself. Each
// package below it proves one thing about the lock:
//
//	endtoend    the lock works from end to end on one ZooKeeper server
//	ensemble    the lock keeps its promises while servers, links and processes of an ensemble fail
//	simulation  the lock is right in thousands of drawn runs against a store in memory
//	histories   what clients saw is linearizable; a module of its own, for its checker
//	soak        nothing is lost while processes count under locks and every kind of fault strikes
//
// The directory simulation/faults holds faults of the lock as patches. The simulation, or a test
// that a patch names, has to see each of them.
package longtest
