// Package castest configures the conformance kit for a driver on package cas. It
// injects the faults between that package and the driver's cas.KV, so that the
// driver's test need not.
package castest
