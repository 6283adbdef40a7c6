package brokerstorm.kit;

import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** Suggestions for a mistyped name. */
public final class DidYouMean {
    private static final int MOST = 3;

    private DidYouMean() {}

    /** {@code "; did you mean a, b?"}, or nothing when none is near. */
    public static String guess(String name, Collection<String> known) {
        String wanted = name.toLowerCase(Locale.ROOT);
        int far = Math.max(2, wanted.length() / 3);
        List<String> near = known.stream()
                .filter(one -> distance(wanted, one.toLowerCase(Locale.ROOT)) <= far)
                .sorted(Comparator.comparing(one -> distance(wanted, one.toLowerCase(Locale.ROOT))))
                .limit(MOST)
                .collect(Collectors.toList());
        return near.isEmpty() ? "" : "; did you mean " + String.join(", ", near) + "?";
    }

    /** Edits from one text to the other (Levenshtein); a text within the other counts as near. */
    private static int distance(String a, String b) {
        if (a.contains(b) || b.contains(a)) {
            return 1;
        }
        int[] row = new int[b.length() + 1];
        for (int j = 0; j <= b.length(); j++) {
            row[j] = j;
        }
        for (int i = 1; i <= a.length(); i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j <= b.length(); j++) {
                int edit = diagonal + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
                diagonal = row[j];
                row[j] = Math.min(edit, 1 + Math.min(row[j], row[j - 1]));
            }
        }
        return row[b.length()];
    }
}
