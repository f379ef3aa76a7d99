// Package ensemble holds tests only: locks on real ZooKeeper servers, through the
// public interface, while servers, networks and processes fail.
//
// What they check is the one promise that a lock on leases makes: its
// holder is told that he has lost it before anybody else is let in. Both instants are taken
// in the test's process, and the tests log the smallest time between them.
package ensemble
