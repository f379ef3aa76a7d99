// Package recipes holds dlock's algorithms. It builds locks on nothing but the driver contract,
// so that each lock works on every store that has a driver.
//
// The read-write lock is the classic one of ephemeral sequential nodes (see "ZooKeeper:
// Wait-free coordination for Internet-scale systems", Hunt et al., USENIX ATC 2010, section
// 2.4, and the "Recipes and Solutions" page of ZooKeeper's manual): each contender appends a
// node host-R-seq or host-W-seq to the queue of the lock's name. A writer holds the lock when
// no node is before its own, a reader when no writer is. Whoever has to wait watches one node
// only: the last one that is in its way. So a release wakes one writer, or the readers that may
// enter together, and nobody else.
//
// Applications use package dlock, which names what they need; the arguments of hooks are here.
package recipes
