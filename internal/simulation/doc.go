// Package simulation runs the lock against a store in memory, in virtual time, under faults
// that a seed draws, and has the store judge what comes out.
//
// One run is a handful of clients that take, hold, downgrade, re-enter and give back locks.
// Every request to the store and every answer stops at a gate. The gate lets one of them pass
// at a time, in an order that the seed draws, and waits until everybody has gone as far as he
// can before it lets the next one pass. Between them it plays faults: it loses requests and
// answers, sends a Delete twice, ends sessions, cuts them off, pauses processes past their
// lease, and removes nodes and whole queues as an operator would. After every step it looks at
// everybody who holds a lock.
//
// The order of goroutines is not the seed's, but as only one thing happens at a time that does
// not matter: a seed that fails prints itself and its journal, and does the same again, if it
// is even: then each client is one goroutine.
package simulation
