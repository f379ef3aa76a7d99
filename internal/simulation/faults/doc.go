// Package faults holds faults to put into the lock on purpose, one at a time. The
// simulation, or another test that the fault names, has to see each of them.
//
// # A fault
//
// Each file NAME.patch is one fault: a header, and a unified diff against the root
// of the module, which git apply takes as well. The header has these lines; a line
// that is indented goes on with the one before it.
//
//	Fault: what the lock does wrong, in plain words
//	Seeds: the first seeds of the simulation that see it, or "none of 20000"
//	Says:  what the simulation says with the first of these seeds
//	Test:  a test that sees the fault, and its package, where no seed does
//	Run:   the command that puts this fault in and runs its seeds, or its test
//
// # Commands
//
// Every test run checks that each fault can still be put in: that the code it changes
// is there, once, and that its header is complete. Code that has changed needs a
// new patch of the same fault. If only the lines around a change are not as they
// were, the fault is put in all the same, and -refresh brings the patch up to date
// for git apply.
//
//	go test ./internal/simulation/faults
//	go test ./internal/simulation/faults -refresh
//
// The following puts the faults in, each into a copy of the files that it changes, and
// fails if one is not seen. It runs a fault's own seeds first and then, if they see
// nothing, the first 20,000 (-limit).
//
//	make faults
//	go test ./internal/simulation/faults -put -run=TestFaults/NAME
//
// The seeds change with the simulation. The following finds them anew, and writes them,
// what the simulation says, and the line numbers into the patches:
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
