package dlocktest

import (
	"os"
	"testing"
)

// A connection that closes during a case must not hide a connection that leaks.
func TestAConnectionThatClosesHidesNoOther(t *testing.T) {
	open := func() (closeBoth func()) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return func() { _, _ = r.Close(), w.Close() }
	}
	closeOld := open()
	before, known := openFiles()
	closeOld()
	if !known {
		t.Skip("this system does not show which files are open")
	}
	defer open()()
	if after, _ := openFiles(); added(before, after) < 2 {
		t.Errorf("before: %v, after: %v, expected the two ends of a pipe among those added", before, after)
	}
}
