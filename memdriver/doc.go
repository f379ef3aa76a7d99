// Package memdriver is a driver with a store in memory, for the goroutines of
// one process. Importing it registers it as "mem".
//
// A data source name is the name of a store, such as "jobs" or
// "jobs?session_timeout=5s". Within a process, equal names mean the same store,
// and the empty name means a new store each time. The store keeps a session
// that it does not hear from for session_timeout (10s). The lease is three
// quarters of that.
//
// It has three uses:
//
//   - A program that needs no other store yet can use it.
//   - Tests of code that uses locks need no server. [Store.Faults] injects the
//     faults of a network: [Faults.ExpireAll] and [Faults.PauseAll] make a
//     program lose its locks. A store works in the virtual time of
//     testing/synctest. Package dlocktest/lossweep loses the lock at each step
//     of a program in turn.
//   - Authors of drivers can read it as an example that keeps every rule of
//     package driver. Its comments refer to the rules by number.
//
// # Client and store
//
// The code is divided as if the store were on another machine. The client is
// [Driver] (open.go) and the session (session.go and watch.go). The store is
// [Store] (store.go) and its queues (queue.go). They talk over a connection
// (connection.go), in which [Faults] (fault.go) injects faults. Authors of
// drivers can skip these two files. A store and its sessions share one mutex.
//
// # Guarantees
//
// A store that [Open] has returned for a name lives as long as the process, any
// other as long as the program refers to it.
//
// Tokens rise strictly over the whole store. The sequences of each queue begin
// with 0. A store forgets an empty queue after at least a thousand others have
// become empty. Made again, it has another epoch, and its sequences start over.
//
// A request takes time in proportion to the length of its queue, a change also
// to the number of sessions. Walk, Close and the end of a session take time in
// proportion to the number of queues and nodes.
//
// Each bubble of testing/synctest needs its own store from [New], which no
// goroutine outside uses.
package memdriver
