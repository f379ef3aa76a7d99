package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/dlock-go/dlock/internal/certify"
	"github.com/dlock-go/dlock/internal/connecthook"
)

const certifyHelp = `Usage: dlock certify [flags]

Runs the conformance kit of dlock on your own store, with your server, proxy and
settings. Each case uses a part of the store of its own, which is removed after
the case: a node, a prefix, a schema, a database or a file. It takes minutes. At
the end it lists what each rule of the contract was checked by, and what this
program cannot play on a real server. The exit status is 0 if no rule is broken,
1 if one is, and 2 if the command line is invalid.

Flags:
`

// certifyMain runs "dlock certify".
func certifyMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var s store
	o := certify.Options{}
	flags := flag.NewFlagSet("certify", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.flags(flags)
	flags.StringVar(&o.Cases, "run", "", "check only these `cases`, such as rule07, or rule0[1-4]/list")
	flags.DurationVar(&o.SessionTimeout, "session-timeout", 2*time.Second, "session timeout in place of that of the data source name; many cases wait for it")
	flags.BoolVar(&o.Verbose, "v", false, "print every case")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, certifyHelp)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = errors.New("it takes no arguments, only flags")
	}
	if err == nil {
		err = s.resolve()
	}
	if err != nil {
		return certifyUsage(stderr, &s, args, err)
	}
	connector, err := connecthook.Open(s.driver, s.dsn)
	if err != nil {
		return certifyUsage(stderr, &s, args, err)
	}
	if certify.IsChild() {
		certify.Child(connector) // ends the process
	}
	o.Driver, o.DSN = s.driver, s.dsn
	passed, err := certify.Run(ctx, connector, o, hiding{stdout, &s, args})
	if err != nil {
		fmt.Fprintf(stderr, "dlock certify: %s\n", s.hide(err.Error(), args))
	}
	if err != nil || !passed {
		return failedStatus
	}
	return 0
}

func certifyUsage(stderr io.Writer, s *store, args []string, err error) int {
	fmt.Fprintf(stderr, "dlock certify: %s\nTry: dlock help certify\n", s.hide(err.Error(), args))
	return usageStatus
}

// hiding is a writer that removes passwords and control characters from each
// line.
type hiding struct {
	io.Writer
	store *store
	args  []string
}

func (h hiding) Write(p []byte) (int, error) {
	text := h.store.hide(string(p), h.args)
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if r == '\n' || r == '\t' {
			out = append(out, byte(r))
		} else {
			out = append(out, escape(string(r))...)
		}
	}
	if _, err := h.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
