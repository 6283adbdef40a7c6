package brokerstorm.kit;

import java.util.List;

/**
 * When message i is due; warm-up messages first, then load. At one rate that is {@code t0 + i / rate}; with a profile
 * it is when the rate, added up over time, has come to i. Rate 0 means unlimited: everything is due at once, until the
 * time is over. One thread uses it.
 */
final class Schedule {
    /** Messages due before the load begins. */
    final long warmUpCount;
    /** Messages due before the load ends. */
    final long total;

    /** Of spans in which the rate stays the same: when each begins, from the first message on. */
    private final long[] beginNs;
    /** Messages due until a span begins, which is rarely a whole number. */
    private final double[] before;
    /** 0 = none is due in the span. */
    private final double[] periodNs;
    private final long warmUpNs;
    private final long loadNs;
    private long t0Ns;
    /** The span of the last message that was asked for; the next is mostly of the same. */
    private int at;

    /** {@code profile}: pairs of duration in ns and share of the rate, the warm-up first; empty = one rate. */
    Schedule(double ratePerS, double warmUpS, double loadS, List<double[]> profile) {
        int count = Math.max(1, profile.size());
        beginNs = new long[count];
        before = new double[count];
        periodNs = new double[count];
        periodNs[0] = ratePerS > 0 ? 1e9 / ratePerS : 0;
        long begin = 0;
        double due = 0;
        for (int k = 0; k < profile.size(); k++) {
            long durationNs = (long) profile.get(k)[0];
            double rate = ratePerS * profile.get(k)[1];
            beginNs[k] = begin;
            before[k] = due;
            periodNs[k] = rate > 0 ? 1e9 / rate : 0;
            begin += durationNs;
            due += rate * (durationNs / 1e9);
        }
        boolean isSteady = profile.isEmpty();
        warmUpCount = (long) Math.ceil(isSteady ? warmUpS * ratePerS : count > 1 ? before[1] : due);
        total = (long) Math.ceil(isSteady ? (warmUpS + loadS) * ratePerS : due);
        warmUpNs = (long) (warmUpS * 1e9);
        loadNs = (long) (loadS * 1e9);
    }

    void begin(long t0) {
        t0Ns = t0;
    }

    long beginNs() {
        return t0Ns;
    }

    boolean isUnlimited() {
        return beginNs.length == 1 && periodNs[0] == 0;
    }

    long loadBeginNs() {
        return t0Ns + warmUpNs;
    }

    long endNs() {
        return t0Ns + warmUpNs + loadNs;
    }

    /** When message i is due. */
    long dueNs(long i) {
        while (at + 1 < before.length && before[at + 1] <= i) {
            at++;
        }
        while (before[at] > i) {
            at--;
        }
        return t0Ns + beginNs[at] + (long) ((i - before[at]) * periodNs[at]);
    }

    /** How many messages are due by now: all i with {@code dueNs(i) <= nowNs}, at most {@link #total}. */
    long dueCount(long nowNs) {
        if (nowNs < t0Ns) {
            return 0;
        }
        long elapsed = nowNs - t0Ns;
        int span = at;
        while (span + 1 < beginNs.length && beginNs[span + 1] <= elapsed) {
            span++;
        }
        while (beginNs[span] > elapsed) {
            span--;
        }
        double passed = periodNs[span] > 0 ? (elapsed - beginNs[span]) / periodNs[span] : 0;
        long count = Math.min((long) (before[span] + passed) + 1, total);
        while (count < total && dueNs(count) <= nowNs) { // rounding at the edge
            count++;
        }
        while (count > 0 && dueNs(count - 1) > nowNs) {
            count--;
        }
        return count;
    }
}
