// Package faults holds faults to put into the lock on purpose, one at a time.
// The simulation, or another test named by the fault, must detect each of them.
//
// # A fault
//
// Each file NAME.patch is one fault: a header, and a unified diff against the
// root of the module, also suitable for git apply. The header has these lines;
// an indented line continues the one before it.
//
//	Fault: what the lock does wrong, in plain words
//	Seeds: the first seeds of the simulation that see it, or "none of 20000"
//	Says:  what the simulation says with the first of these seeds
//	Test:  a test that sees the fault, and its package, where no seed does
//	Run:   the command that puts this fault in and runs its seeds, or its test
//
// # Commands
//
// Every test run checks that each fault still applies, in exactly one place,
// and that its header is complete. When the code of a change has been edited,
// the patch must be rewritten. Edited context lines do no harm, but -refresh
// brings the patch up to date for git apply.
//
//	go test ./internal/simulation/faults
//	go test ./internal/simulation/faults -refresh
//
// The following puts each fault into a copy of the files that it changes, and
// fails if one is not seen. It runs a fault's own seeds first and then, if they
// see nothing, the first 20,000 (-limit).
//
//	make faults
//	go test ./internal/simulation/faults -put -run=TestFaults/NAME
//
// The seeds change with the simulation. The following finds them anew and
// updates the patches, including messages and line numbers:
//
//	make fault-seeds
//	go test ./internal/simulation/faults -find -run=TestFaults/NAME
//
// # A new fault
//
// Put the fault into the code, write a patch whose header is only the Fault
// line, take the fault out of the code again, and find its seeds:
//
//	(echo "Fault: a writer does not wait for readers"; echo; git diff -U1) \
//		> internal/simulation/faults/NAME.patch
package faults
