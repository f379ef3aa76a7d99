package zktest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(Main(m))) }

func TestAReleaseThatIsNamedIsNotReplacedByAnother(t *testing.T) {
	_, err := findJars(t.TempDir(), debianJars)
	require.ErrorContains(t, err, "holds no zookeeper-*.jar")
}
