// Package longtest is the parent of the packages with tests that take long. It
// holds no code itself. Each package below it proves one thing about the lock:
//
//   - endtoend: the lock works from end to end on one ZooKeeper server.
//   - ensemble: the lock keeps its promises while the servers of an ensemble,
//     their links and the clients' processes fail.
//   - histories: what clients did and saw is linearizable. It is a module of its
//     own, because it needs a checker that no other package needs.
//   - handmade: locks that programs make by hand break where dlock does not. It is
//     a module of its own, because it needs the client libraries of the stores.
//   - soak: nothing is lost while processes count under locks and every kind of
//     fault happens.
package longtest
