// Package histories judges the records of package internal/histories with
// Porcupine: for each history, it searches for an order of the operations that
// the model of a lock allows.
//
//	make histories
//
// makes the histories of every store and judges them. It fails if records of a
// store are missing.
package histories
