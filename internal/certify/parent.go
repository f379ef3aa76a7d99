package certify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Options configure [Run].
type Options struct {
	Driver, DSN    string
	Cases          string        // pattern of the rules and cases to run, such as "rule07"; empty means all
	SessionTimeout time.Duration // session timeout of the kit's sessions
	Verbose        bool          // print the kit's whole output
}

// Run runs the conformance kit in a child process, which has to call [Child],
// and writes its findings to out. Before it returns, it removes what the child
// has left in the store, even if ctx is done. It reports whether the store
// broke no rule.
func Run(ctx context.Context, store driver.Connector, o Options, out io.Writer) (passed bool, err error) {
	if _, _, err := driver.Isolate(store, driver.Isolation{Name: "c"}); errors.Is(err, errors.ErrUnsupported) {
		return false, errors.New("this driver cannot separate a part of the store for the kit")
	}
	parts, err := os.CreateTemp("", "dlock-certify-")
	if err != nil {
		return false, err
	}
	defer os.Remove(parts.Name())
	defer parts.Close()
	passed, err = runChild(ctx, o, parts.Name(), out)
	return passed, errors.Join(err, removeRest(store, parts))
}

func runChild(ctx context.Context, o Options, parts string, out io.Writer) (passed bool, err error) {
	out = &locked{Writer: out} // written by two goroutines, one for each output of the child
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cases := "^Certify$"
	for level := range strings.SplitSeq(o.Cases, "/") {
		cases += "/(" + level + ")"
	}
	child := exec.CommandContext(ctx, self, "certify")
	child.WaitDelay = 5 * time.Second
	child.Env = append(os.Environ(), partsVariable+"="+parts, casesVariable+"="+cases, timeoutVariable+"="+o.SessionTimeout.String(),
		"DLOCK_DRIVER="+o.Driver, "DLOCK_DSN="+o.DSN)
	child.Stderr = out
	stdout, err := child.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := child.Start(); err != nil {
		return false, err
	}
	checked := show(stdout, out, o.Verbose)
	err = child.Wait()
	switch failed := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &failed):
		return false, nil
	case err == nil && !checked:
		return false, fmt.Errorf("no case of the kit has run: is -run %q the name of a rule, such as rule07?", o.Cases)
	}
	return err == nil, err
}

// locked serializes writes.
type locked struct {
	mu sync.Mutex
	io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Writer.Write(p)
}

var (
	begins  = regexp.MustCompile(`^=== RUN +Certify/([^/]+)$`)
	skipped = regexp.MustCompile(`^ +run\.go:\d+: .* not (checked|applicable): `)
	noise   = regexp.MustCompile(`^(=== |--- (PASS|SKIP|FAIL): Certify \(| *--- (PASS|SKIP)|PASS$|FAIL$|testing: warning)`)
)

// show copies the relevant part of the output of go test -v, or all of it if
// verbose. It reports whether any case was run.
func show(in io.Reader, out io.Writer, verbose bool) (checked bool) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		rule := begins.FindStringSubmatch(line)
		checked = checked || strings.Contains(line, "--- PASS: Certify/") || strings.Contains(line, "--- FAIL: Certify/")
		switch {
		case verbose:
			fmt.Fprintln(out, line)
		case rule != nil:
			fmt.Fprintf(out, "checking %s\n", rule[1])
		case !skipped.MatchString(line) && !noise.MatchString(line):
			fmt.Fprintln(out, line)
		}
	}
	_, _ = io.Copy(io.Discard, in) // if a line was too long to scan
	return checked
}

// removeRest removes the parts of the store that the child has not removed
// itself.
func removeRest(store driver.Connector, file io.ReadSeeker) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var left []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if removed, ok := strings.CutPrefix(lines.Text(), "-"); ok {
			left = slices.DeleteFunc(left, func(name string) bool { return name == removed })
		} else {
			left = append(left, lines.Text())
		}
	}
	var all []error
	for _, name := range left {
		_, remove, err := driver.Isolate(store, driver.Isolation{Name: name})
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
			err = remove(ctx)
			cancel()
		}
		if err != nil {
			all = append(all, fmt.Errorf("the part %q stays in the store: %w", name, err))
		}
	}
	return errors.Join(all...)
}
