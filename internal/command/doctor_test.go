package command

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// diagnosed is a driver whose connectors report these findings.
type diagnosed []driver.Finding

func (d diagnosed) OpenConnector(string) (driver.Connector, error) {
	return diagnosedConnector{memdriver.New(), d}, nil
}

type diagnosedConnector struct {
	driver.Connector
	found diagnosed
}

func (c diagnosedConnector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	for _, f := range c.found {
		report(f)
	}
	return ctx.Err()
}

var (
	healthy = diagnosed{{Check: driver.CheckTimeout, Text: "10s granted"}, {Check: driver.CheckClock, Level: driver.Unknown, Text: "no clock"}}
	sick    = diagnosed{{Check: driver.CheckTimeout, Text: "10s granted"},
		{Check: driver.CheckRights, Level: driver.Problem, Text: "no \x1b[31mrights, secret of zk://me:geheim@h\nrun:\nGRANT", Advice: "ask\nthe operator"}}
)

func init() {
	dlock.Register("healthy", healthy)
	dlock.Register("sick", sick)
	dlock.Register("warned", diagnosed{{Check: driver.CheckSettings, Level: driver.Warning, Text: "fsync off", Advice: "on"}})
}

func runDoctor(t *testing.T, args ...string) (status int, out, errs string) {
	t.Setenv("DLOCK_CONFIG", "/dev/null")
	var stdout, stderr bytes.Buffer
	status = Run(t.Context(), append([]string{"doctor"}, args...), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func TestDoctorPrintsALineForEachFinding(t *testing.T) {
	status, out, errs := runDoctor(t, "-driver", "healthy")
	assert.Zero(t, status)
	assert.Empty(t, errs)
	assert.Equal(t, "ok       session timeout  10s granted\nunknown  clock            no clock\n", out)
}

func TestDoctorNamesTheRemedy(t *testing.T) {
	status, out, _ := runDoctor(t, "-driver", "sick", "-dsn", "zk://me:geheim@h")
	assert.Equal(t, failedStatus, status)
	assert.Equal(t, `ok       session timeout  10s granted
problem  rights           no \x1b[31mrights, secret of zk://me:...@h
         run:
         GRANT
         -> ask
            the operator
`, out)
	status, _, _ = runDoctor(t, "-driver", "warned")
	assert.Equal(t, failedStatus, status)
}

func TestDoctorPrintsJSON(t *testing.T) {
	status, out, _ := runDoctor(t, "-driver", "sick", "-json")
	assert.Equal(t, failedStatus, status)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	var found map[string]string
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &found))
	assert.Equal(t, map[string]string{"check": "session timeout", "level": "ok", "text": "10s granted"}, found)
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &found))
	assert.Equal(t, "problem", found["level"])
	assert.Equal(t, "ask\nthe operator", found["advice"])
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
