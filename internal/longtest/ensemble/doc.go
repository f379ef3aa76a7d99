// Package ensemble tests locks on several real ZooKeeper servers while servers,
// networks and processes fail.
//
// The tests check what a lease promises: a holder learns that it has lost the
// lock before the next contender is granted it. Each test takes the times of
// the loss and of the next grant in its own process and logs the smallest
// margin between them.
package ensemble
