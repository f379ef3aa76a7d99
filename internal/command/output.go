package command

import (
	"os"
	"sync"
)

// output is the program's standard output. The first failed write ends the
// command, by calling end.
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

// failure returns the first write error, or nil.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
