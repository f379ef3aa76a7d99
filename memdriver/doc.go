// Package memdriver is the reference driver of dlock: a store in memory, for
// one process. Importing it registers it as "mem".
//
// It is of use in three ways: as the embedded default of programs that need
// no other store yet, as the store for tests of everything that locks (it can
// play what goes wrong in a network, and it takes the virtual time of
// testing/synctest without change), and as the driver to read before writing
// another one. It keeps every rule of package driver, and the comments name
// the rule where it is kept.
//
// # Two halves
//
// The code is divided as it would be with a store on another machine. The
// client's half is [Driver], the session (session.go, calls.go, watch.go) and
// its line to the store (line.go). The store's half is [Store], its queues
// (queue.go, shard.go), what it keeps of each session (record.go), and
// serve.go, where a request arrives. The halves meet only in requests, replies
// and the events that end watches; so the faults of fault.go, which sit on the
// line between them, happen to the code that is used without them.
//
// # Guarantees
//
// A store lives as long as somebody refers to it; nothing is kept on disk.
// Tokens rise strictly over the whole store. Sequences count up from 0 in each
// queue. An empty queue is remembered until at least a thousand others have
// become empty after it; then it is forgotten, and starts over as a new
// incarnation, with another epoch. Create, Delete, Replace, Read and Watch take
// constant time, List takes time in proportion to the length of the queue, and
// Walk to the number of queues.
//
// A store must not be shared by two bubbles of testing/synctest, nor by a
// bubble and the world outside: make one with [New] in each.
package memdriver
