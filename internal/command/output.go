package command

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// output is the program's standard output. The first failed write calls end.
type output struct {
	file *os.File
	end  func()

	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		o.mu.Lock()
		if o.err == nil {
			o.err = err
		}
		o.mu.Unlock()
		o.end()
	}
	return n, err
}

// status turns a command's exit status into the program's, which is never 0
// after a failed write.
func (o *output) status(status int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return status
	}
	if !errors.Is(o.err, syscall.EPIPE) { // EPIPE: the reader of the output has exited
		fmt.Fprintf(os.Stderr, "dlock: %v\n", o.err)
	}
	return max(status, failedStatus)
}
