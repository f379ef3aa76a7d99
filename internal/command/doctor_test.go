package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

type checked struct {
	driver.Connector
	found []driver.Finding
	err   error
}

func (c checked) OpenConnector(string) (driver.Connector, error) { return c, nil }

func (c checked) Check(ctx context.Context) ([]driver.Finding, error) {
	return c.found, cmp.Or(ctx.Err(), c.err)
}

type refusing struct{ error }

func (r refusing) Connect(context.Context) (driver.Session, error) { return nil, r.error }

var sick = []driver.Finding{
	{Text: "fsync on"},
	{Level: driver.Problem, Text: "no \x1b[31mrights, secret of zk://me:geheim@h\nrun:\nGRANT", Advice: "ask\nthe operator"},
}

func init() {
	register := func(name string, c driver.Connector, err error, found ...driver.Finding) {
		dlock.Register(name, checked{c, found, err})
	}
	register("healthy", memdriver.New(), nil, driver.Finding{Text: "fsync on"})
	register("warned", memdriver.New(), nil, driver.Finding{Level: driver.Warning, Text: "fsync off", Advice: "on"})
	register("hasty", memdriver.New(memdriver.WithSessionTimeout(time.Second)), nil, driver.Finding{Text: "fsync on"})
	register("silent", memdriver.New(), errors.New("no answer"))
	register("refusing", refusing{errors.New("bad password of zk://me:geheim@h")}, errors.New("bad password"))
	register("cut off", refusing{driver.ErrUnavailable}, driver.ErrUnavailable)
	register("sick", refusing{errors.New("no rights")}, nil, sick...)
	dlock.Register("unchecked", unchecked{memdriver.New()})
}

// unchecked is a driver whose connectors do not implement driver.Checker.
type unchecked struct{ store *memdriver.Store }

func (u unchecked) OpenConnector(string) (driver.Connector, error) {
	return struct{ driver.Connector }{u.store}, nil
}

func runDoctor(t *testing.T, args ...string) (status int, out, errs string) {
	t.Setenv("DLOCK_CONFIG", "/dev/null")
	var stdout, stderr bytes.Buffer
	status = Run(t.Context(), append([]string{"doctor"}, args...), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func TestDoctorReportsSessionLockClockAndServer(t *testing.T) {
	status, out, errs := runDoctor(t, "-driver", "healthy")
	assert.Zero(t, status)
	assert.Empty(t, errs)
	for _, line := range []string{"began session .* at memory in .*", "the session timeout is 10s: .* at most 7.5s later, and 2.5s before .*",
		"took and released a lock in .*", "the store's clock agrees .*", "fsync on"} {
		assert.Regexp(t, "(?m)^ok       "+line+"$", out)
	}
	assert.Equal(t, 5, strings.Count(out, "\n"), "%s", out)
}

func TestDoctorNamesTheRemedy(t *testing.T) {
	for name, want := range map[string]string{
		"warned":    "warning  fsync off\n         -> on\n",
		"hasty":     "before the store gives the lock away\n         -> set session_timeout=10s",
		"silent":    "unknown  dlock: check: no answer\n         -> try again",
		"unchecked": "unknown  this driver does not check its server\n         -> compare",
		"refusing":  "problem  dlock: ping: bad password of zk://me:...@h\n         -> correct what the error names",
		"cut off":   "problem  dlock: ping: store unavailable\n         -> make sure that the address is that of the store",
	} {
		status, out, errs := runDoctor(t, "-driver", name, "-dsn", "zk://me:geheim@h")
		assert.Equal(t, strings.HasPrefix(want, "unknown"), status == 0, name)
		assert.Contains(t, out, want)
		assert.Empty(t, errs)
	}
}

func TestDoctorPrintsTheDriversExplanationOfARefusedConnect(t *testing.T) {
	status, out, _ := runDoctor(t, "-driver", "sick", "-dsn", "zk://me:geheim@h")
	assert.Equal(t, failedStatus, status)
	assert.Equal(t, `ok       fsync on
problem  no �[31mrights, secret of zk://me:...@h
         run:
         GRANT
         -> ask
            the operator
`, out)
}

func TestDoctorPrintsJSON(t *testing.T) {
	status, out, _ := runDoctor(t, "-driver", "sick", "-json")
	assert.Equal(t, failedStatus, status)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	var found map[string]string
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &found))
	assert.Equal(t, map[string]string{"level": "ok", "text": "fsync on"}, found)
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &found))
	assert.Equal(t, "problem", found["level"])
	assert.Equal(t, "ask\nthe operator", found["advice"])
}

func TestDoctorWarnsOfAClockThatIsSetWrong(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		created time.Duration
		level   driver.Level
		text    string
	}{
		{time.Hour + time.Second, driver.Warning, "1h0m0s ahead of this machine's"},
		{-time.Hour, driver.Warning, "1h0m0s behind this machine's"},
		{10 * time.Second, driver.OK, "to within 9s"},
		{time.Second / 2, driver.OK, "to within 1s"},
	} {
		f := clock(now.Add(c.created), now, now.Add(time.Second))
		assert.Equal(t, c.level, f.Level)
		assert.Contains(t, f.Text, c.text)
		assert.Equal(t, c.level != driver.OK, f.Advice != "")
	}
}

func TestDoctorReportsALockThatIsRefused(t *testing.T) {
	var found []driver.Finding
	client := dlock.NewClient(forbidding{memdriver.New()})
	defer client.Close()
	e := examination{client: client, report: func(f driver.Finding) { found = append(found, f) }}
	e.lock(t.Context())
	require.Len(t, found, 1)
	assert.Equal(t, driver.Problem, found[0].Level)
	assert.Contains(t, found[0].Text, "permission denied")
	assert.Contains(t, found[0].Advice, "the rights")
}

type forbidding struct{ driver.Connector }

type forbidden struct{ driver.Session }

func (f forbidding) Connect(ctx context.Context) (driver.Session, error) {
	s, err := f.Connector.Connect(ctx)
	return forbidden{s}, err
}

func (forbidden) Create(context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	return driver.Joined{}, errors.New("permission denied")
}

func TestDoctorRefusesABadCommandLine(t *testing.T) {
	for _, args := range [][]string{{"-driver", "mem"}, {"-driver", "nonsense"}, {"-x"}, {"-driver", "healthy", "more"}, {"-dsn", "zk://me:geheim@h"}} {
		status, out, errs := runDoctor(t, args...)
		assert.Equal(t, usageStatus, status, "%v", args)
		assert.Empty(t, out)
		assert.Contains(t, errs, "dlock doctor: ")
		assert.NotContains(t, errs, "geheim")
	}
	status, out, errs := runDoctor(t, "-h")
	assert.Zero(t, status)
	assert.Empty(t, errs)
	assert.Contains(t, out, "-json")
}

func TestDoctorEndsWithItsContext(t *testing.T) {
	t.Setenv("DLOCK_CONFIG", "/dev/null")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, failedStatus, Run(ctx, []string{"doctor", "-driver", "healthy"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "context canceled")
}
