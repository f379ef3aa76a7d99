// Adds an offset to the wall clock that a program reads. The file that
// TESTENV_CLOCK names holds the offset: a number of nanoseconds of 8 bytes, in the byte
// order of the machine. The monotonic clock stays as it is, as if an operator had set the
// clock of the machine.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

// Processes that the program starts by fork share the offset.
__attribute__((constructor)) static void map_offset(void) {
	const char *name = getenv("TESTENV_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void *page;
	if (fd < 0)
		abort();
	page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		abort();
	offset = page;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int result = syscall(SYS_clock_gettime, clock, t);
	if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t now = t->tv_sec * 1000000000LL + t->tv_nsec + *offset;
		t->tv_sec = now / 1000000000;
		t->tv_nsec = now % 1000000000;
	}
	return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *result) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}
