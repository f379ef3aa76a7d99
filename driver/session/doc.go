// Package session implements driver.Session for stores that have no sessions of
// their own, such as databases. A driver provides a [Store], each method of
// which is one request or transaction, and calls [Connect].
//
// The package contains what is the same for all such stores: the lease and its
// heartbeats, the search for sessions that have expired, polling, watches and
// notices, time limits, callers that leave before the answer, and the clean-up
// after a reply that was lost. It sends nothing that a Store does not need:
// abilities that few stores have are interfaces of their own, which a Store may
// implement: [Starter], [Notifier], [Admitter], [Expirer], [Inspector], [Reader]
// and [Tidier].
//
// This package is unsettled. Its interfaces may change until two drivers outside
// this project use it.
package session
