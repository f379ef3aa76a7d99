package plant

import (
	"os"
	"time"
)

// planted is the environment variable that is set while a fault is put in.
const planted = "DLOCK_PLANTED_FAULT"

// CaseTimeout returns the timeout of one case of the conformance kit. It is
// short while a fault is put in, because many cases then time out. Otherwise it
// is 0, for the kit's default.
func CaseTimeout() time.Duration {
	if os.Getenv(planted) != "" {
		return 5 * time.Second
	}
	return 0
}
