// Package shards divides a fixed number of shards among all processes that work
// on them.
//
// Each process calls [Run] with a function that works on one shard. When processes
// come or go, shards move: each process has at most its part of the shards,
// rounded up, and about that many move. If a process dies, others take its shards
// as soon as the store ends its session. Two processes never work on one shard
// together, unless one ignores that its lock was lost; see [dlock.Lock.Token] for
// what then helps.
//
// A process takes part by holding the lock of the name as a reader, so that the
// queue of that lock shows all workers. Every process assigns the shards in the
// same way, by the workers' nodes, and works on those that it assigns to itself.
// While processes see different queues, the lock of each shard keeps them apart.
//
// A worker that comes or goes costs every worker two requests, and each shard that
// moves costs as many as passing any lock on. It also costs every worker processor
// time: about 4 ms with 16 workers and 1,000 shards.
package shards
