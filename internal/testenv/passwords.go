package testenv

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// passwordLetters occur nowhere else in the data source names and errors.
const passwordLetters = "QZJK"

// KeepPasswords checks that no error returned by the function open contains
// four consecutive bytes of a password. The passwords contain characters that
// ought to be escaped. They replace PASSWORD in the data source names in forms.
func KeepPasswords(t *testing.T, open func(dsn string) error, forms ...string) {
	t.Helper()
	const characters = passwordLetters + passwordLetters + passwordLetters + passwordLetters + "/?#@:&=%+()[] ;,'\"`\\"
	random := rand.New(rand.NewPCG(1, 2))
	password := make([]byte, 12)
	for range 20000 {
		for i := range password {
			password[i] = characters[random.IntN(len(characters))]
		}
		for _, form := range forms {
			dsn := strings.Replace(form, "PASSWORD", string(password), 1)
			err := open(dsn)
			for i := 0; err != nil && i+4 <= len(password); i++ {
				part := string(password[i : i+4])
				if strings.ContainsAny(part, passwordLetters) && strings.Contains(err.Error(), part) {
					t.Fatalf("the error for %q repeats %q: %v", dsn, part, err)
				}
			}
		}
	}
}
