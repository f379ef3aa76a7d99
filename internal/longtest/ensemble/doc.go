// Package ensemble holds tests only: locks on several real ZooKeeper servers,
// through the public interface, while servers, networks and processes fail.
//
// They check the promise that a lock with a lease makes: a holder learns that
// it has lost the lock before the next contender is granted it. Each test takes
// the time of the loss and the time of the next grant in its own process, and
// logs the smallest difference between them.
package ensemble
