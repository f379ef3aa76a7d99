// Package majority provides an exclusive lock in several independent stores, for
// programs that have no ensemble of ZooKeeper or etcd. With an ensemble, a lock in
// it survives the loss of a minority, too, takes fewer requests, and has one token.
//
// A caller has a [Mutex] while it holds the lock of that name in more than half of
// the stores, so the Mutex survives the loss of a minority with all their data. Any
// two majorities have a store in common, whose lock has one holder at a time.
//
// A held [Lock] counts as lost as soon as fewer than a majority of its leases are
// valid, by the clocks of this process. The lock in a store that has forgotten what
// it confirmed counts as lost, too, but only when this process learns of it. So
// there can be two holders for a while if all stores that both have taken forget
// the first holder: at least one store, and a majority if the first holder has
// taken all stores.
//
// If a store loses the lock, or was away at the grant, the Lock takes it there
// in the background, so that a long hold survives stores that restart one after
// the other. That lock counts towards the majority once a majority of the other
// stores has confirmed theirs.
//
// There is no single fencing token. The resource has to keep the greatest token of
// each store, and refuse a caller if any of [Lock.Tokens] is less than that of its
// store: see DoAll and RaiseAll in package fence. They stay those of the grant.
//
// Redlock, described on https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/,
// also takes a lock in a majority of stores. But it trusts the clocks of the stores,
// has no tokens, and lets contenders that each hold some stores give up and try
// again. Here they wait in the queue of the first store, so whoever is first there
// finds the other stores free, unless stores fail.
package majority
