// Package memdriver is the reference driver of dlock: a store in memory, for
// one process. Importing it registers it as "mem".
//
// It is of use in three ways: as the embedded default of programs that need
// no other store yet, as the store for tests of everything that locks
// ([Store.Faults] plays what goes wrong in a network, and a store takes the
// virtual time of testing/synctest without change), and as the driver to read
// before writing another one. It keeps every rule of package driver, and the
// comments name the rule where it is kept.
//
// # Two halves
//
// The code is divided as it would be with a store on another machine. The
// client's half is [Driver] (open.go) and the session (session.go, watch.go).
// The store's half is [Store] with its records of sessions (store.go) and its
// queues (queue.go). One mutex guards a store and its sessions. The session
// reaches the store only through ask, which sends a request; the store reaches
// the session only through sendNotice, which sends a notice of a change to its
// open watches (package watches keeps them). Both pass the session's line
// (connection.go), on which [Faults] (fault.go) plays what goes wrong in a network. A
// driver author can skip these two files.
//
// # Guarantees
//
// A store lives as long as the program refers to it; nothing is kept on disk.
// Tokens rise strictly over the whole store. Sequences count up from 0 in each
// queue. An empty queue is remembered until at least a thousand others have
// become empty after it; then it is forgotten, and starts over as a new
// incarnation, with another epoch. A request takes time in proportion to the
// length of its queue, and Walk, Close and the end of a session take time in
// proportion to the number of queues and nodes.
//
// A store must not be shared by two bubbles of testing/synctest, nor by a
// bubble and the world outside: make one with [New] in each.
package memdriver
