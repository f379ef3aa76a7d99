package demo

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/internal/leakcheck"
)

// TestMain runs the demo if the demo has started this process as a child.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{"demo", childArgument}) {
		os.Exit(Main(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(leakcheck.After(m.Run()))
}
