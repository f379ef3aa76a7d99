// Package histories judges the records of package internal/history with
// Porcupine, which searches each history for an order of the operations that
// the model of a lock allows.
//
//	make histories
//
// produces the histories of every store and judges them. It fails if the
// records of a store are missing.
package histories
