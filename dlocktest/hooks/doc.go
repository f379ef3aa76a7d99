// Package hooks plays faults for the conformance kit between a driver on package
// session and its store, so that a driver has only the hooks of its own to write:
// see [Set], and for a server [Network].
package hooks
