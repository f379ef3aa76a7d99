// Package plant puts faults into the code on purpose, one at a time. A test must
// see each of them.
//
// # A fault
//
// Each file faults/NAME.patch is one fault: a header, and a unified diff against
// the root of the repository. The header has these lines; an indented line
// continues the one before it.
//
//	Fault: what the code does wrong, in plain words
//	Test:  a pattern of the test that sees it, as for go test -run, and its directory
//	Seeds: in place of a test: seeds of the simulation that see it
//	Says:  what the simulation says with the first of these seeds
//	Kit:   whose conformance kits see it, too: each driver's (each), those of
//	       stores without notices (polling), or whose answers can be lost (networks)
//	Quick: yes, if make test-long puts the fault in
//
// Line numbers are ignored: the lines that a hunk replaces must occur exactly
// once in the file, with the context lines or without. Every test run checks that.
//
// # Commands
//
//	make faults
//	go test ./internal/plant -put -run TestFaults/NAME
//
// # A new fault
//
// Put the fault into the code, write a patch, and take the fault out again:
//
//	(echo "Fault: a writer does not wait for readers"; echo "Test: TestX ./recipes"
//	  echo; git diff -U1) > internal/plant/faults/NAME.patch
//
// The faults of drivers that the conformance kit must see are not here, but in the
// tests of package dlocktest, because one binary sees all of them within seconds.
package plant
