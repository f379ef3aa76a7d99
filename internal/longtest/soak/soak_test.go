//go:build linux || darwin

package soak

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
	_ "github.com/dlock-go/dlock/zkdriver"
)

var (
	soakFor  = flag.Duration("soak", 0, "go on with rounds for that long; by default there is one")
	seedFlag = flag.Uint64("seed", 1, "what faults, their order and their durations are drawn from")
	first    = flag.Int("first", 1, "the number of the first round")
	faults   = flag.String("faults", "", "a regular expression: only these kinds of faults, for finding out what it takes to break something")
	journals = flag.String("journals", "", "a directory for the files of rounds in which something was wrong; by default that for temporary files")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(workerVariable); text != "" {
		os.Exit(work(text))
	}
	os.Exit(leakcheck.After(zktest.Main(m)))
}

func TestNothingIsLostWhileEverythingFails(t *testing.T) {
	e := startServers(t)
	f := newFigures(*seedFlag)
	for number := *first; number == *first || time.Since(f.began) < *soakFor; number++ {
		dir := roundDir(t, number)
		diverged := false
		ok := t.Run(fmt.Sprint("round ", number), func(t *testing.T) { diverged = playRound(t, e, f.seed, number, dir, f) })
		f.rounds++
		if !ok {
			f.violations = max(f.violations, 1) // also if the round was not judged
			t.Errorf("the files of the workers are in %s; again: go test -C internal/longtest -race -v ./soak -seed %d -first %d", dir, f.seed, number)
			break
		}
		if diverged {
			fmt.Printf("round %d: the files of its workers are in %s\n", number, dir)
			e = replaceServers(t, e)
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	if f.injected[stoppedAtWrite] > 0 && f.unchecked.lost() == 0 {
		t.Error("the counter without the check has lost nothing: no worker was stopped between its last check and its write")
	}
	fmt.Printf("\n%s\n", f.table())
}

// startServers sets a syncLimit of 5 s, which exceeds every session timeout.
func startServers(t *testing.T) *zktest.Ensemble {
	zktest.Require(t)
	opts := []zktest.Option{
		zktest.WithConfig(map[string]string{"initLimit": "6", "syncLimit": "10"}),
		zktest.WithBacklog(8),
		zktest.WithContainerCheck(time.Second),
	}
	if runtime.GOOS == "linux" {
		zktest.RequireSlowDisk(t)
		opts = append(opts, zktest.WithSlowDisk())
	} else {
		t.Log("LEFT OUT, slow disks: they need Linux")
	}
	return zktest.StartEnsemble(t, 3, opts...)
}

func replaceServers(t *testing.T, old *zktest.Ensemble) *zktest.Ensemble {
	for _, s := range old.Servers {
		s.Kill()
	}
	return startServers(t)
}

func roundDir(t *testing.T, number int) string {
	if *journals != "" {
		if err := os.MkdirAll(*journals, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(*journals, fmt.Sprintf("dlock-soak-round-%d-", number))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
