// Package recipes holds the algorithms of dlock. It builds locks on the
// interfaces and rules of package driver only, so that a lock works on every
// store that has a driver.
//
// The read-write lock is the classic one of ephemeral sequential nodes. It is
// described in "ZooKeeper: Wait-free coordination for Internet-scale systems"
// (Hunt et al., USENIX ATC 2010), section 2.4, and on the page "Recipes and
// Solutions" of ZooKeeper's manual. Each contender appends a node, host-R-seq or
// host-W-seq, to the queue of the lock. A writer holds the lock when no node is
// ahead of its own. A reader holds it when no writer's node is ahead of its own.
// A waiter watches one node only: its predecessor, which is the last node that it
// waits for. So a release wakes one writer, or the readers to which it grants the
// lock, and no other waiter.
//
// Applications use package dlock, which exports every name of this package.
package recipes
