// Package longtest is the parent of the packages with tests that take long. It
// is a module of its own, for the sake of the libraries that these tests need.
// Each package below it proves one thing about the lock:
//
//   - endtoend: the lock works from end to end on one ZooKeeper server.
//   - ensemble: the lock keeps its promises while the servers of an ensemble,
//     their links and the clients' processes fail.
//   - histories: what clients did and saw is linearizable, as a search
//     through the records of internal/histories shows.
//   - handmade: locks that programs make by hand break where dlock does not.
//   - soak: nothing is lost while processes count under locks and every kind of
//     fault happens.
package longtest
