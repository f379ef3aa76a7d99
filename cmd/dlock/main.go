// Command dlock shows what distributed read-write locks do. Run it without
// arguments to list its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/dlock-go/dlock/memdriver"
	_ "github.com/dlock-go/dlock/zkdriver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
