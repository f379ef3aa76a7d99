// Package longtest is the parent of the packages with slow tests. It is a
// module of its own so that users of dlock do not inherit the dependencies of
// these tests.
//
//   - endtoend: the lock against one ZooKeeper server.
//   - ensemble: the lock while servers of an ensemble, the links between them
//     and client processes fail. It also records histories.
//   - histories: a search through the records of internal/history for an
//     explanation by a linearizable lock.
//   - handmade: hand-written locks that break in situations where dlock does
//     not.
//   - soak: counters under locks in many processes, under every kind of fault.
package longtest
